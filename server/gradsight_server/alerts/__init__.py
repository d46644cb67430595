"""Alerts: rules over a stream's newest steps, what they open and resolve, and who is told."""
