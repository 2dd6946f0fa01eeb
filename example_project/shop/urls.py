from django.urls import path

from . import views

urlpatterns = [
    path("", views.front, name="front"),
    path("orders/", views.place_order, name="place-order"),
]
