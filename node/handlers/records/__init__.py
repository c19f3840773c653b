"""The handlers of requests for records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""
