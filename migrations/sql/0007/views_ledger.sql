create view turnledger.price_catalogues as
select version, published_at, source, jsonb_array_length(own -> 'models') as own_models, own, "by", why, at
from ledger.price_catalogues;

create view turnledger.reprices as
select run_no as run, name, version, since, until, sessions, "by", why
from ledger.reprices;
