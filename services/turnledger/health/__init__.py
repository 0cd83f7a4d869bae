"""`health`: what every long-running command says of itself over HTTP, and when that is red."""
