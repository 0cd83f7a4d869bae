"""`archive`: accepted events of closed days in files that outlive Kafka and Postgres, one folder a tenant and day, each provable by its manifest."""
