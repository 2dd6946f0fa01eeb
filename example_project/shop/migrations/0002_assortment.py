"""Add articles to sell and customers to buy them."""

from django.db import migrations

STOCK = {"teapot": 10_000, "kettle": 10_000, "unicorn": 0}
CUSTOMERS = 50


def open_shop(apps, schema_editor) -> None:
    Article = apps.get_model("shop", "Article")
    Customer = apps.get_model("shop", "Customer")
    Article.objects.bulk_create(Article(name=name, stock=n) for name, n in STOCK.items())
    Customer.objects.bulk_create(Customer(name=f"Customer {n + 1}") for n in range(CUSTOMERS))


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(open_shop, migrations.RunPython.noop)]
