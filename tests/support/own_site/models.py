from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models


class Member(AbstractBaseUser, PermissionsMixin):
    """No username, no id: what Django's own user has and others have not."""

    email = models.EmailField(primary_key=True)
    is_staff = models.BooleanField(default=True)

    USERNAME_FIELD = "email"
    objects = BaseUserManager()

    def __str__(self) -> str:
        return self.email
