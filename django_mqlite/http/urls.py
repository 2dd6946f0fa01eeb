"""The paths of the broker: `path("mqlite/", include("django_mqlite.http.urls"))`."""

from django.urls import re_path

from .views import serve

app_name = "mqlite_http"
urlpatterns = [re_path(r"^(?P<path>.*)$", serve, name="broker")]
