"""`cli`: the command line, one thin command a file."""
