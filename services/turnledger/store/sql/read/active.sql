select generation from turnledger.active
