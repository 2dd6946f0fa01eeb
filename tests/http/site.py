"""A project that serves the broker below /mqlite/, by WSGI and by ASGI."""

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import include, path

application = get_wsgi_application()

from django_mqlite.http.asgi import MqliteBroker  # noqa: E402 - needs the apps

asgi_application = MqliteBroker(get_asgi_application(), prefix="/mqlite")


def home(request):
    return HttpResponse("home")


home.login_required = False

urlpatterns = [
    path("mqlite/", include("django_mqlite.http.urls")),
    path("home/", home),
]
