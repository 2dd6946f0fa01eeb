"""The shop's HTTP server: `python -m example_project.web [--port N]`."""

import argparse
import sys

import waitress

from .wsgi import application


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 chooses a free port (8000)")
    port = parser.parse_args().port
    try:
        server = waitress.create_server(application, host="127.0.0.1", port=port, threads=4)
    except OSError as error:
        sys.exit(
            f"Cannot listen on port {port}: {error.strerror}. Choose another port with --port."
        )
    print(f"serving http://127.0.0.1:{server.effective_port}/", flush=True)
    server.run()


if __name__ == "__main__":
    main()
