-- What stands of some sessions in the generation that readers see.
insert into {slot}.{table} ({columns}) select {columns} from {live}.{table} where session_no = any(%(sessions)s)
