"""`python -m antiphon` is the command line `antiphon`."""

from antiphon.transport.cli import main

main()
