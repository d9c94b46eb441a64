"""Stream of bucket changes: usage snapshots, splits and merges."""
