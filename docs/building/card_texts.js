// Unpacks cards as docs/building/card_texts.py packs them, with the texts of `zooCompare.texts`.
zooCompare.unpack = (value) => {
  const { unpack } = zooCompare;
  if (Array.isArray(value)) return value.map(unpack);
  if (typeof value === "string" && value.startsWith("#")) {
    const [index, ...numbers] = value.slice(1).split(" ");
    return zooCompare.texts[index].replace(/\{(\d+)\}/g, (place, number) => numbers[number] ?? place);
  }
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, unpack(one)]));
};
zooCompare.card = (card) => {
  const unpacked = zooCompare.unpack(card);
  zooCompare.cards[unpacked.name] = unpacked;
};
