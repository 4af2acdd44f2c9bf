"""The command `antiphon`, which is `python -m antiphon` too."""

import signal


def main() -> None:
    """Run the command line. Ctrl-C while it is being loaded ends it at once: there is nothing to tell yet."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from antiphon.transport.cli import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
