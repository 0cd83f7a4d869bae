"""`devstack`: the embedded broker and database. Imports nothing of ours."""
