"""Write golden_schema.sql from the migrations; review the diff afterwards."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    with TemporaryDirectory() as directory:
        os.environ["MQLITE_TEST_DATABASE"] = str(Path(directory) / "db.sqlite3")
        # Nothing of Django before the environment names the database.
        import django  # noqa: PLC0415
        from django.core.management import call_command  # noqa: PLC0415
        from django.db import connection  # noqa: PLC0415

        from tests.support.schema import GOLDEN, schema_of  # noqa: PLC0415

        django.setup()
        call_command("migrate", verbosity=0)
        GOLDEN.write_text(schema_of(connection), encoding="utf-8")
        connection.close()


if __name__ == "__main__":
    main()
