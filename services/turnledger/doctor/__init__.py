"""`doctor`: reading and proving: sessions list and show, verify."""
