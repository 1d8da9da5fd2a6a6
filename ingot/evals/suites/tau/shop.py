"""The database of a shop as one conversation leaves it: users, products and orders.

Only records that are asked for are copied, so that many conversations share the database that they begin with.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Record = dict[str, Any]
CHANGING = ("users", "orders")


class Shop:
    """One conversation's view of the database."""

    def __init__(self, database: Mapping[str, Mapping[str, Record]]) -> None:
        self.database = database
        self.copies: dict[str, dict[str, Record]] = {table: {} for table in CHANGING}
        self.transferred = False  # to a person: the conversation is over
        self.over = False  # the user has nothing more to say

    def order(self, order_id: str) -> Record:
        """An order, which may be changed."""
        return self._record("orders", order_id, "Order not found")

    def user(self, user_id: str) -> Record:
        """A user, who may be changed."""
        return self._record("users", user_id, "User not found")

    def product(self, product_id: str) -> Mapping[str, Any]:
        """A product; the shop's stock does not change."""
        if product_id not in self.database["products"]:
            raise ValueError("Product not found")
        return self.database["products"][product_id]

    def payment_method(self, user_id: str, method_id: str) -> Record:
        """One of the user's ways to pay."""
        methods: dict[str, Record] = self.user(user_id)["payment_methods"]
        if method_id not in methods:
            raise ValueError("Payment method not found")
        return methods[method_id]

    def same_as(self, other: Shop) -> bool:
        """Whether both databases are equal as a whole."""
        return all(
            self._now(table, key) == other._now(table, key)
            for table in CHANGING
            for key in {*self.copies[table], *other.copies[table]}
        )

    def _now(self, table: str, key: str) -> Record:
        return self.copies[table].get(key) or self.database[table][key]

    def _record(self, table: str, key: str, problem: str) -> Record:
        if key not in self.database[table]:
            raise ValueError(problem)
        return self.copies[table].setdefault(key, copy.deepcopy(self.database[table][key]))
