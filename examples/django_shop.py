"""A shop on Django: an order and the task that ships it are stored in one transaction, or not at all.

The queue is in the same database file as Django's tables (`adopt=True`); with PostgreSQL or MariaDB give the App the
url of Django's database. A worker would be another process: `tampu work django_shop:tasks`. Run alone, this file
creates the tables, places two orders, one of which fails, and runs the task.
"""

from typing import Any

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="not a secret: an example",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django_shop.db"}},
    USE_TZ=True,
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402 - only after the settings
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

import tampu  # noqa: E402

tasks = tampu.App("django_shop.db", adopt=True)


class Order(models.Model):  # type: ignore[misc]  # Django has no types
    item = models.CharField(max_length=100)
    shipped = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"


@tasks.task(queue="orders")
def ship(order: int) -> None:
    Order.objects.filter(id=order).update(shipped=True)
    connection.close()  # each task thread has its own connection


def place_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        with tasks.transaction(connection.connection) as tx:
            tx.publish(ship.message(order.id))
        if order.item == "moon":
            raise ValueError("out of stock")  # neither the order nor the task is kept
    return JsonResponse({"order": order.id}, status=201)


urlpatterns = [path("orders", place_order)]


def ready() -> None:
    """Open the store before any transaction begins: in a project, from AppConfig.ready()."""
    tasks.store.queues.put("orders", max_attempts=5, retention=3600)


def main() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    ready()
    browser: Any = Client(raise_request_exception=False)
    print("tea:", browser.post("/orders", {"item": "tea"}).status_code)
    print("moon:", browser.post("/orders", {"item": "moon"}).status_code)
    (message,) = tasks.store.messages("orders")
    connection.close()
    with tampu.working(tasks):
        tasks.store.result(message.id, wait=30)
    for order in Order.objects.all():
        print(f"order {order.id}: {order.item}, shipped: {order.shipped}")
    connection.close()
    tasks.close()


if __name__ == "__main__":
    main()
