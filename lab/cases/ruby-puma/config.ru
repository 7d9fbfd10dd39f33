# frozen_string_literal: true

# A service with the allocations of a Rails application and nothing else of it: records from a
# "database" (strings of a row each), hashes with symbols and strings, JSON and templates, and a
# fragment cache of 300 entries that outlive their requests.

require "digest"
require "erb"
require "json"

PAGE = ERB.new(<<~HTML)
  <!doctype html><title><%= title %></title>
  <table><% rows.each do |row| %>
  <tr><td><%= row[:id] %></td><td><%= ERB::Util.h(row[:name]) %></td>
  <td><%= row[:tags].join(", ") %></td></tr>
  <% end %></table>
HTML

class Service
  WORDS = Array.new(4096) { |i| Digest::MD5.hexdigest(i.to_s)[0, 4 + i % 13] }.freeze

  def initialize
    @cache = {}
    @lock = Mutex.new
  end

  # The digest of an answer is the same whoever makes it and whenever.
  def call(env)
    kind, number, rows = env["PATH_INFO"].split("/").drop(1)
    return idle if kind == "idle"

    records = records(number.to_i, rows.to_i)
    body = kind == "json" ? json(records) : page(number, records)
    keep(number, body)
    [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
  end

  private

  # What the out-of-band collection of a server does between requests. At rest every allocator then
  # holds the same data.
  def idle
    GC.start
    [200, {}, [@cache.size.to_s]]
  end

  def records(seed, count)
    random = Random.new(seed)
    Array.new(count) do |id|
      {
        id: id,
        name: Array.new(2 + random.rand(4)) { WORDS[random.rand(4096)] }.join(" "),
        body: Array.new(5 + random.rand(60)) { WORDS[random.rand(4096)] }.join(" "),
        tags: Array.new(random.rand(6)) { WORDS[random.rand(4096)].dup },
        at: format("2026-%02d-%02dT%02d:00:00Z", 1 + id % 12, 1 + id % 28, id % 24)
      }
    end
  end

  def json(records)
    text = JSON.generate(records: records, total: records.size)
    # A client library of another service parses what this one rendered.
    parsed = JSON.parse(text, symbolize_names: true)
    parsed[:records].each do |record|
      record[:summary] = record[:body][0, 40 + record[:id] % 200].upcase
    end
    JSON.generate(parsed)
  end

  def page(number, rows)
    title = "page #{number}"
    PAGE.result(binding)
  end

  # The least recently written entry goes. The cached fragment is a part of the body.
  def keep(number, body)
    fragment = body.byteslice(0, 2_000 + number.to_i * 37 % 30_000)
    @lock.synchronize do
      @cache.delete(number)
      @cache[number] = fragment.dup
      @cache.shift while @cache.size > 300
    end
  end
end

run Service.new
