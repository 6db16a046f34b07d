"""directsuite: asyncio client SDK for four services of secure health communication."""
