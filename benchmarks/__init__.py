"""What this project's speed is measured with: `python -m benchmarks`. See README.md."""
