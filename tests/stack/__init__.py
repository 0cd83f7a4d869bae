"""What tests need from the world: servers, databases, topics, commands (tests/README.md)."""
