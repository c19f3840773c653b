"""The handlers of requests for records: produce, fetch, look-ups and deletions."""
