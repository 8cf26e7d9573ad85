cuda = "0"
