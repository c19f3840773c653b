"""`tidelog up`, `down`, `status`, `broker`, `logs`, `logdirs`, `clients`, `doctor` and `explain`."""
