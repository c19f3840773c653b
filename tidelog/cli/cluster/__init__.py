"""`tidelog up`, `down`, `status`, `broker`, `logs`, `logdirs`, `doctor` and `explain`."""
