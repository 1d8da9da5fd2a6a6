"""What an agent of the retail shop can do: the sixteen tools of tau-bench's retail domain.

Names, parameters, rules and effects are those of tau2-bench, because rewards compare databases. That holds for one oddity too:
where several items of an order are modified at once, all of them get price and options of the last one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.envs.tools.calculator import evaluate
from ingot.envs.tools.tool import Tool, as_text
from ingot.envs.tools.worker import check, describe
from ingot.evals.suites.tau.shop import Record, Shop

SHOP = "shop"
REASONS = ("no longer needed", "ordered by mistake")


@dataclass(frozen=True)
class ShopTool(Tool):
    """A tool that takes the shop by position: an address has a parameter `state`, the usual name of what an episode keeps."""

    def answer_here(self, arguments: Mapping[str, Any], state: Any = None) -> str:
        """What the tool says; what a caller did wrong is an error that it can read."""
        assert callable(self.function)
        if wrong := check(dict(arguments), dict(self.schema)):
            return f"error: {wrong}"
        try:
            return as_text(self.function(state, **arguments))
        except ValueError as error:
            return f"error: {error}"


def find_user_id_by_email(shop: Shop, email: str) -> str:
    """Find a user's id by email address."""
    return _find_user(shop, lambda user: user["email"].lower() == email.lower())


def find_user_id_by_name_zip(shop: Shop, first_name: str, last_name: str, zip: str) -> str:
    """Find a user's id by first name, last name and zip code, if the email address is not known."""
    wanted = (first_name.lower(), last_name.lower(), zip)
    return _find_user(
        shop,
        lambda user: (
            (user["name"]["first_name"].lower(), user["name"]["last_name"].lower(), user["address"]["zip"]) == wanted
        ),
    )


def get_user_details(shop: Shop, user_id: str) -> Record:
    """A user's name, address, ways to pay and orders."""
    return shop.user(user_id)


def get_order_details(shop: Shop, order_id: str) -> Record:
    """The status and the details of an order; its id is like '#W0000000', with the '#'."""
    return shop.order(order_id)


def get_product_details(shop: Shop, product_id: str) -> Record:
    """All variants of a product; a product's id is not an item's id."""
    return dict(shop.product(product_id))


def get_item_details(shop: Shop, item_id: str) -> Record:
    """Options, price and availability of an item; an item's id is not a product's id."""
    for product in shop.database["products"].values():
        if item_id in product["variants"]:
            return dict(product["variants"][item_id])
    raise ValueError("Item not found")


def list_all_product_types(shop: Shop) -> str:
    """The names and ids of all products."""
    products = shop.database["products"].values()
    return json.dumps({each["name"]: each["product_id"] for each in products}, sort_keys=True)


def calculate(shop: Shop, expression: str) -> str:
    """The value of an expression of numbers, + - * /, parentheses and blanks, with two decimals."""
    return str(round(float(evaluate(expression)), 2))


def transfer_to_human_agents(shop: Shop, summary: str) -> str:
    """Hand the user over to a person, if the request cannot be handled or the user asks for it."""
    shop.transferred = True
    return "Transfer successful"


def cancel_pending_order(shop: Shop, order_id: str, reason: str) -> Record:
    """Cancel a pending order, after the user's yes. The reason is 'no longer needed' or 'ordered by mistake'."""
    order = shop.order(order_id)
    if order["status"] != "pending":
        raise ValueError("Non-pending order cannot be cancelled")
    if reason not in REASONS:
        raise ValueError("Invalid reason")
    refunds = []
    for payment in order["payment_history"]:
        refunds.append({**payment, "transaction_type": "refund"})
        _pay(shop.payment_method(order["user_id"], payment["payment_method_id"]), -payment["amount"])
    order["status"], order["cancel_reason"] = "cancelled", reason
    order["payment_history"] += refunds
    return order


def modify_pending_order_address(
    shop: Shop, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
) -> Record:
    """Change the address of a pending order, after the user's yes."""
    order = _pending(shop, order_id)
    order["address"] = _address(address1, address2, city, state, country, zip)
    return order


def modify_user_address(
    shop: Shop, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
) -> Record:
    """Change a user's default address, after the user's yes."""
    user = shop.user(user_id)
    user["address"] = _address(address1, address2, city, state, country, zip)
    return user


def modify_pending_order_payment(shop: Shop, order_id: str, payment_method_id: str) -> Record:
    """Pay a pending order in another way, after the user's yes."""
    order = _pending(shop, order_id)
    method = shop.payment_method(order["user_id"], payment_method_id)
    history = order["payment_history"]
    if len(history) != 1 or history[0]["transaction_type"] != "payment":
        raise ValueError("There should be exactly one payment for a pending order")
    before, amount = history[0]["payment_method_id"], history[0]["amount"]
    if before == payment_method_id:
        raise ValueError("The new payment method should be different from the current one")
    _check_balance(method, amount, "the order")
    history += [_transaction("payment", amount, payment_method_id), _transaction("refund", amount, before)]
    _pay(method, amount)
    _pay(shop.payment_method(order["user_id"], before), -amount)
    return order


def modify_pending_order_items(
    shop: Shop, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> Record:
    """Change items of a pending order to others of the same products, once and after the user's yes."""
    order = shop.order(order_id)
    if order["status"] != "pending":
        raise ValueError("Non-pending order cannot be modified")
    variants = _exchanged(shop, order, item_ids, new_item_ids, same_allowed=False)
    difference = sum(new["price"] - old["price"] for old, new in variants)
    method = shop.payment_method(order["user_id"], payment_method_id)
    _check_balance(method, difference, "the new item")
    kind = "payment" if difference > 0 else "refund"
    order["payment_history"].append(_transaction(kind, abs(difference), payment_method_id))
    _pay(method, difference)
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        item = next((each for each in order["items"] if each["item_id"] == item_id), None)
        if item is None:
            raise ValueError(f"Item {item_id} not found")
        item["item_id"] = new_item_id
        item["price"], item["options"] = variants[-1][1]["price"], variants[-1][1]["options"]
    order["status"] = "pending (item modified)"
    return order


def exchange_delivered_order_items(
    shop: Shop, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> Record:
    """Exchange items of a delivered order for others of the same products, once and after the user's yes."""
    order = _delivered(shop, order_id, "exchanged")
    variants = _exchanged(shop, order, item_ids, new_item_ids, same_allowed=True)
    difference = round(sum(new["price"] - old["price"] for old, new in variants), 2)
    _check_balance(shop.payment_method(order["user_id"], payment_method_id), difference, "the price difference")
    order["status"] = "exchange requested"
    order["exchange_items"], order["exchange_new_items"] = sorted(item_ids), sorted(new_item_ids)
    order["exchange_payment_method_id"], order["exchange_price_difference"] = payment_method_id, difference
    return order


def return_delivered_order_items(shop: Shop, order_id: str, item_ids: list[str], payment_method_id: str) -> Record:
    """Return items of a delivered order, after the user's yes; the refund goes to the original payment or a gift card."""
    order = _delivered(shop, order_id, "returned")
    method = shop.payment_method(order["user_id"], payment_method_id)
    if not _is_gift_card(method) and payment_method_id != order["payment_history"][0]["payment_method_id"]:
        raise ValueError("Payment method should be the original payment method")
    _check_items(order, item_ids)
    order["status"] = "return requested"
    order["return_items"], order["return_payment_method_id"] = sorted(item_ids), payment_method_id
    return order


def _find_user(shop: Shop, fits: Callable[[Mapping[str, Any]], bool]) -> str:
    for user_id in shop.database["users"]:
        user = shop.copies["users"].get(user_id) or shop.database["users"][user_id]
        if fits(user):
            return user_id
    raise ValueError("User not found")


def _pending(shop: Shop, order_id: str) -> Record:
    order = shop.order(order_id)
    if "pending" not in order["status"]:
        raise ValueError("Non-pending order cannot be modified")
    return order


def _delivered(shop: Shop, order_id: str, done: str) -> Record:
    order = shop.order(order_id)
    if order["status"] != "delivered":
        raise ValueError(f"Non-delivered order cannot be {done}")
    return order


def _check_items(order: Record, item_ids: Sequence[str]) -> None:
    """An item may be named as often as it was ordered."""
    ordered = [each["item_id"] for each in order["items"]]
    for item_id in item_ids:
        if item_ids.count(item_id) > ordered.count(item_id):
            raise ValueError(f"Number of {item_id} not found.")


def _exchanged(
    shop: Shop, order: Record, item_ids: Sequence[str], new_item_ids: Sequence[str], *, same_allowed: bool
) -> list[tuple[Record, Mapping[str, Any]]]:
    """The items of the order with the variants that they are exchanged for."""
    _check_items(order, item_ids)
    if len(item_ids) != len(new_item_ids):
        raise ValueError("The number of items to be exchanged should match")
    pairs = []
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        if item_id == new_item_id and not same_allowed:
            raise ValueError("The new item id should be different from the old item id")
        item = next(each for each in order["items"] if each["item_id"] == item_id)
        variant = shop.product(item["product_id"])["variants"].get(new_item_id)
        if variant is None or not variant["available"]:
            raise ValueError(f"New item {new_item_id} not found or available")
        pairs.append((item, variant))
    return pairs


def _address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Record:
    return {"address1": address1, "address2": address2, "city": city, "country": country, "state": state, "zip": zip}


def _transaction(kind: str, amount: float, method_id: str) -> Record:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method_id}


def _is_gift_card(method: Mapping[str, Any]) -> bool:
    return bool(method["source"] == "gift_card")


def _check_balance(method: Mapping[str, Any], amount: float, what: str) -> None:
    if _is_gift_card(method) and method["balance"] < amount:
        raise ValueError(f"Insufficient gift card balance to pay for {what}")


def _pay(method: Record, amount: float) -> None:
    """Take an amount from a gift card; other ways to pay keep no balance here."""
    if _is_gift_card(method):
        method["balance"] = round(method["balance"] - amount, 2)


TOOLS: Mapping[str, Tool] = {
    function.__name__: ShopTool(describe(function, ignore=(SHOP,)), function, asks=False, here=True)
    for function in (
        calculate,
        cancel_pending_order,
        exchange_delivered_order_items,
        find_user_id_by_email,
        find_user_id_by_name_zip,
        get_item_details,
        get_order_details,
        get_product_details,
        get_user_details,
        list_all_product_types,
        modify_pending_order_address,
        modify_pending_order_items,
        modify_pending_order_payment,
        modify_user_address,
        return_delivered_order_items,
        transfer_to_human_agents,
    )
}
