"""The tables that the store keeps for itself: models so that Django knows them, and no verbs."""

from django.db import models

from .fields import EpochMillisecondsField


class Dedup(models.Model):
    """A key that was seen within its queue's window."""

    pk = models.CompositePrimaryKey("queue", "key")
    queue = models.TextField()
    key = models.TextField()
    data_sha256 = models.TextField()
    message = models.BigIntegerField()
    expires_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_dedup"

    def __str__(self) -> str:
        return self.key


class SettlementReceipt(models.Model):
    """The proof that a lease was settled in this way."""

    pk = models.CompositePrimaryKey("message", "lock_token")
    message = models.BigIntegerField()
    lock_token = models.TextField()
    queue = models.TextField()
    verb = models.TextField()
    arguments = models.TextField()
    expires_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_settlement_receipts"

    def __str__(self) -> str:
        return f"{self.verb} #{self.message}"


class ReceiveAttempt(models.Model):
    """The leases that a claim with an attempt id was given."""

    pk = models.CompositePrimaryKey("queue", "attempt_id")
    queue = models.TextField()
    attempt_id = models.TextField()
    leases = models.TextField()
    expires_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_receive_attempts"

    def __str__(self) -> str:
        return self.attempt_id


class MetaEntry(models.Model):
    """Facts about the schema, the live workers and the reaper, by key."""

    key = models.TextField(primary_key=True)
    value = models.TextField()
    updated_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_meta"

    def __str__(self) -> str:
        return self.key


class AccessKey(models.Model):
    """A credential of the HTTP broker: the SHA-256 of its secret, never the secret."""

    digest = models.TextField(primary_key=True)
    name = models.TextField(unique=True)
    rights = models.TextField(default="{}")
    created_at = EpochMillisecondsField()
    expires_at = EpochMillisecondsField()
    last_used_at = EpochMillisecondsField()
    revoked_at = EpochMillisecondsField()

    class Meta:
        db_table = "mqlite_access_keys"

    def __str__(self) -> str:
        return self.name
