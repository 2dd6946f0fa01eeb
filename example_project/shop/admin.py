from django.contrib import admin

from .models import Article, Handling, Order


class HandlingInline(admin.TabularInline):
    model = Handling
    extra = 0
    can_delete = False
    readonly_fields = ["worker", "delivery_count", "handled_at"]

    def has_add_permission(self, request, obj=None) -> bool:
        return False


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["id", "customer", "article", "card", "status", "placed_at"]
    list_editable = ["card"]
    list_filter = ["status", "card", "article"]
    list_select_related = ["customer", "article"]
    search_fields = ["=id", "=reference"]
    readonly_fields = ["reference", "placed_at"]
    inlines = [HandlingInline]


@admin.register(Article)
class ArticleAdmin(admin.ModelAdmin):
    list_display = ["name", "stock"]
    list_editable = ["stock"]
