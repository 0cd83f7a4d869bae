"""`rollup`: the rollup worker, from marks to `sessions`, `ai_usage`, `tool_usage`, `mcp_usage`, `usage_hourly` and the overlays (design 5)."""
