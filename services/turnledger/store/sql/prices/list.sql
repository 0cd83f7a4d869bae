select content from ledger.price_lists where source = %(source)s
