"""`ingest`: the stream processor: Faust app, batch transport, fence, decisions."""
