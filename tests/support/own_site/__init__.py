"""An app with a user model of its own, in a project with an admin site of its own."""
