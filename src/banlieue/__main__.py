"""`python -m banlieue`."""

from banlieue.cli.main import main

main()
