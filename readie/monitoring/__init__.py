"""What routers and workers tell of themselves: metrics, health, log lines, traces. ``docs/metrics.md`` lists it all."""
