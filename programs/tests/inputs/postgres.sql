select count(*) from pgbench_accounts;
select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
       (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history),
       (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
       (select count(*) from pgbench_history);
create table work as
select n as id, md5(n::text) as name, n % 97 as kind, repeat(md5((n * 7)::text), n % 20) as payload
from generate_series(1, 40000) n;
create index on work (name);
create index on work using gin (to_tsvector('simple', name));
set work_mem = '64MB';
select kind, count(*), sum(length(payload)), md5(string_agg(payload, '' order by id)) from work group by kind order by kind;
select count(*) from work a join work b on left(a.name, 3) = left(b.name, 3);
select md5(json_agg(w order by w.id)::text) from work w where kind < 5;
select md5(string_agg(regexp_replace(name, '([0-9]+)', '<\1>', 'g'), ',' order by id)) from work where kind = 3;
do $$
declare texts text[] := '{}';
begin
  for i in 1 .. 2000 loop
    texts := texts || repeat('x', i % 100);
    begin
      perform 1 / (i % 50);
    exception when division_by_zero then
      texts := texts[1 : 10];
    end;
  end loop;
  raise notice '% texts', array_length(texts, 1);
end $$;
set jit_above_cost = 0;
select sum(id * 3 + kind), avg(length(payload))::numeric(10, 3) from work where name > '3';
