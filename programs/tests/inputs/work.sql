pragma cache_size = -20000;
create table item(id integer primary key, name text, kind integer, payload text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < ROWS)
insert into item
select i, printf('%08x', (i * 2654435761) & 4294967295), i % 97,
       substr(hex(printf('%.*c', 30 + i % 200, char(97 + i % 26))), 1, 100 + i % 600)
from n;
create index item_name on item(name);
create index item_kind on item(kind, name);
analyze;
select kind, count(*), sum(length(payload)), min(name), max(name) from item group by kind order by kind;
select count(*), sum(a.id) from item a join item b on b.name = a.name and a.kind = b.kind;
select group_concat(name, ',') from (select name from item order by payload desc, id limit 500);
begin;
update item set payload = payload || hex(name) || payload where id % 5 = 0;
delete from item where id % 11 = 0;
rollback;
update item set payload = payload || hex(name) where id % 5 = 0;
delete from item where id % 31 = 0;
vacuum;
pragma integrity_check;
select json_group_array(json_object('id', id, 'name', name)) from item where kind = 7 and id < 20000;
select sum(length(payload)), count(*) from item;
