"""`retention`: how history leaves the ledger. Which sessions may go, that each is proven before it does, and days that nobody needs any more."""
