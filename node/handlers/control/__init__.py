"""The handlers of the controller's requests. Start with `controller_requests.py`; `role_plan.py` has the rules."""
