"""`python -m tests.support.own_site.tour`: through every page and a few buttons, as a member."""

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402

from django_mqlite.models import Message, Queue, Subscription  # noqa: E402
from tests.support.own_site.models import Member  # noqa: E402

ROOT = "/office/django_mqlite/"


def main() -> None:
    call_command("migrate", verbosity=0, run_syncdb=True)
    member = Member.objects.create(email="a@example.org", is_superuser=True)
    client = Client()
    client.force_login(member)
    Queue.objects.create_queue("jobs")
    Subscription.objects.subscribe("orders", "stock")
    letter = Message.objects.enqueue("jobs", 1)
    Message.objects.claim("jobs")[0].reject("Broken")
    pages = [
        *("", "queue/", "queue/overview/", "queue/jobs/change/", "message/", "deadletter/"),
        *(f"message/{letter.pk}/change/", f"deadletter/{letter.pk}/change/"),
        *("subscription/", "subscription/add/", "subscription/stock/change/"),
    ]
    for page in pages:
        text = show(client.get(ROOT + page), page)
        assert '="/admin/' not in text, page
    show(client.post(f"{ROOT}message/{letter.pk}/purge/"), "purge")
    selected = {"action": "redrive", "_selected_action": letter.pk}
    show(client.post(f"{ROOT}deadletter/", selected), "redrive")
    answer = client.post(f"{ROOT}message/{letter.pk}/redrive/")
    assert answer.url == f"{ROOT}message/{letter.pk}/change/", answer.url
    assert client.post(f"{ROOT}queue/", {"pause": "jobs"}).status_code == 302
    assert Queue.objects.get(name="jobs").paused
    authors = member.logentry_set.values_list("user_id", flat=True)
    assert list(authors) == ["a@example.org"] * 2, authors


def show(response, page: str) -> str:
    assert response.status_code == 200, (page, response.status_code)
    return response.content.decode()


if __name__ == "__main__":
    main()
