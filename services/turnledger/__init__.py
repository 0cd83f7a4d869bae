"""turnledger: provable telemetry for fleets of agent harnesses."""
