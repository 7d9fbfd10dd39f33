# Strings, hashes, threads, fork, Marshal and a compacting collection; prints digests.
require "digest"
require "json"

scale = Integer(ARGV.fetch(0))
show = ->(name, value) { puts "#{name} #{Digest::SHA256.hexdigest(value.to_s)[0, 16]}" }

words = Hash.new { |hash, key| hash[key] = +"" }
word = 12_345
(100_000 * scale).times do
  word = (word * 1_103_515_245 + 12_345) % 2_147_483_648
  words["w#{word % 20_011}"] << (97 + word % 26).chr
end
show["words", words.sort.flatten.join(",")]

document = (0...3_000).map { |n| { "id" => n, "tags" => ["t#{n % 7}"] * (n % 9), "text" => "é" * (n % 80) } }
show["json", JSON.generate(JSON.parse(JSON.pretty_generate(document)))]
show["marshal", Marshal.load(Marshal.dump(document)) == document]

threads = (0...8).map do |seed|
  Thread.new { (0...4_000).map { |n| (seed * n).to_s * (n % 30) }.join.sum }
end
show["threads", threads.map(&:value)]

GC.start
GC.compact if GC.respond_to?(:compact)
GC.stress = true
show["stress", (0...60).map { |n| "#{n}" * n }.join]
GC.stress = false

children = (0...4).map do |n|
  IO.popen("-") { |io| io ? io.read : print((0...5_000).map { |i| "#{n}-#{i}" }.join.sum) }
end
show["children", children]

grown = +""
20_000.times { |n| grown << "line #{n}\n" * 15 }
show["grown", grown]
show["regex", grown.scan(/line (\d*7)\n/).length]
