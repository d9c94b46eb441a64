"""`python -m headgate.cli`."""

from headgate.cli import main

main()
