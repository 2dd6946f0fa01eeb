"""One admin site, of the project's own, under another name and address; Django's is nowhere."""

from django.contrib.admin import AdminSite
from django.urls import path

from django_mqlite.admin import register

site = AdminSite(name="backoffice")
register(site)

urlpatterns = [path("office/", site.urls)]
