// Unpacks cards as docs/building/card_texts.py packs them: texts from `zooCompare.texts`, indices from characters.
zooCompare.unpack = (value, key = "") => {
  const { unpack } = zooCompare;
  if (Array.isArray(value)) return value.map((one) => unpack(one, key));
  if (key === "words" || key === "sizes") return Array.from(value, (character) => character.charCodeAt(0) - 35);
  if (typeof value === "string" && value.startsWith("#")) {
    const [index, ...numbers] = value.slice(1).split(" ");
    return zooCompare.texts[index].replace(/\{(\d+)\}/g, (place, number) => numbers[number] ?? place);
  }
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, unpack(one, name)]));
};
zooCompare.card = (card) => {
  const unpacked = zooCompare.unpack(card);
  zooCompare.cards[unpacked.name] = unpacked;
};
