"""`kafka`: how this process reaches the broker: clients, TLS, and why it did not answer. What is sent and read is for others to say."""
