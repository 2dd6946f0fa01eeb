from django import forms

from .models import Article, Customer


class OrderForm(forms.Form):
    reference = forms.UUIDField()
    customer = forms.ModelChoiceField(Customer.objects.all())
    article = forms.ModelChoiceField(Article.objects.all())
    card = forms.ChoiceField(choices=[("valid", "valid"), ("declined", "declined")])
