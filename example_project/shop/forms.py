from django import forms

from .models import Article, Customer, Order


class OrderForm(forms.Form):
    reference = forms.UUIDField()
    customer = forms.ModelChoiceField(Customer.objects.all())
    article = forms.ModelChoiceField(Article.objects.all())
    card = forms.ChoiceField(choices=Order.Card.choices)
