function (data) {
  const root = document.getElementById('rotary')
  const read = name => Number(root.querySelector(`input[name=${name}]`).value)
  const turned = ([a, b], angle) => [
    a * Math.cos(angle) - b * Math.sin(angle),
    b * Math.cos(angle) + a * Math.sin(angle),
  ]
  const show = () => {
    const key = read('position'), query = key + read('distance')
    const places = {key, query}
    let total = 0
    data.speeds.forEach((speed, pair) => {
      const q = turned(data.query[pair], query * speed), k = turned(data.key[pair], key * speed)
      total += q[0] * k[0] + q[1] * k[1]
    })
    for (const hand of root.querySelectorAll('[data-hand]')) {
      const name = hand.dataset.hand, pair = Number(hand.dataset.pair)
      const [a, b] = data[name][pair]
      const angle = (Math.atan2(b, a) + data.speeds[pair] * places[name]) * 180 / Math.PI
      const centre = hand.getAttribute('x1')
      hand.setAttribute('transform', `rotate(${-angle} ${centre} ${centre})`)
    }
    for (const input of root.querySelectorAll('input')) input.closest('label').querySelector('output').value = input.value
    root.querySelector('output[name=score]').value = (total / Math.sqrt(2 * data.speeds.length)).toFixed(3)
  }
  root.addEventListener('input', show)
}
