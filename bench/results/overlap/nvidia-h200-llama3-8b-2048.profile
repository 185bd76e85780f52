weft-profile 1
device NVIDIA H200
model llama3-8b
made-for 94e36d7f1dbe262a1d26225a8dadd5c4 9263adb320fa9b3cb21adf3e7930f54e
groups 132
tile 128
context 128
op embed memory
time embed tokens 256 share 1 us 14.848 spread 0.096
time embed tokens 512 share 1 us 24.736 spread 0.08
time embed tokens 768 share 1 us 34.816 spread 0.096
time embed tokens 1024 share 1 us 44.32 spread 0.112
time embed tokens 1280 share 1 us 54.24 spread 0.144
time embed tokens 1536 share 1 us 64.192 spread 0.16
time embed tokens 1792 share 1 us 74.048 spread 0.128
time embed tokens 2048 share 1 us 84.288 spread 0.368
time embed tokens 2048 share 0.7 us 779.888 spread 17.376
time embed tokens 2048 share 0.5 us 1053.44 spread 1.744
time embed tokens 2048 share 0.2 us 2549.968 spread 2.752
op qkv compute
time qkv tokens 256 share 1 us 45.12 spread 0.432
time qkv tokens 512 share 1 us 69.92 spread 0.32
time qkv tokens 768 share 1 us 112.32 spread 1.344
time qkv tokens 1024 share 1 us 106.272 spread 3.312
time qkv tokens 1280 share 1 us 143.04 spread 3.664
time qkv tokens 1536 share 1 us 161.36 spread 0.64
time qkv tokens 1792 share 1 us 213.056 spread 5.952
time qkv tokens 2048 share 1 us 204.624 spread 2
time qkv tokens 2048 share 0.7 us 326.112 spread 7.072
time qkv tokens 2048 share 0.5 us 392.608 spread 0.992
time qkv tokens 2048 share 0.2 us 891.264 spread 0.88
op prefill_attention compute
time prefill_attention tokens 256 share 1 us 27.392 spread 0.176
time prefill_attention tokens 512 share 1 us 29.28 spread 0.24
time prefill_attention tokens 768 share 1 us 33.6 spread 0.32
time prefill_attention tokens 1024 share 1 us 33.44 spread 0.24
time prefill_attention tokens 1280 share 1 us 50.944 spread 0.512
time prefill_attention tokens 1536 share 1 us 55.648 spread 0.24
time prefill_attention tokens 1792 share 1 us 63.936 spread 0.288
time prefill_attention tokens 2048 share 1 us 66.496 spread 0.384
time prefill_attention tokens 2048 share 0.7 us 91.616 spread 0.576
time prefill_attention tokens 2048 share 0.5 us 134.432 spread 1.648
time prefill_attention tokens 2048 share 0.2 us 265.6 spread 1.456
op attn_out compute
time attn_out tokens 256 share 1 us 26.944 spread 0.128
time attn_out tokens 512 share 1 us 38.112 spread 0.32
time attn_out tokens 768 share 1 us 52.64 spread 0.608
time attn_out tokens 1024 share 1 us 64.448 spread 0.288
time attn_out tokens 1280 share 1 us 102.688 spread 0.768
time attn_out tokens 1536 share 1 us 103.04 spread 0.608
time attn_out tokens 1792 share 1 us 118.784 spread 0.4
time attn_out tokens 2048 share 1 us 122.912 spread 0.416
time attn_out tokens 2048 share 0.7 us 164.016 spread 0.608
time attn_out tokens 2048 share 0.5 us 206.176 spread 0.4
time attn_out tokens 2048 share 0.2 us 494.88 spread 1.424
op gate_up compute
time gate_up tokens 256 share 1 us 126.4 spread 3.968
time gate_up tokens 512 share 1 us 217.2 spread 0.496
time gate_up tokens 768 share 1 us 326.768 spread 4.24
time gate_up tokens 1024 share 1 us 359.344 spread 1.616
time gate_up tokens 1280 share 1 us 459.296 spread 2.24
time gate_up tokens 1536 share 1 us 559.008 spread 0.816
time gate_up tokens 1792 share 1 us 603.376 spread 0.944
time gate_up tokens 2048 share 1 us 698.048 spread 1.056
time gate_up tokens 2048 share 0.7 us 908.608 spread 1.536
time gate_up tokens 2048 share 0.5 us 1234.368 spread 1.536
time gate_up tokens 2048 share 0.2 us 2979.776 spread 1.648
op down compute
time down tokens 256 share 1 us 64.288 spread 0.432
time down tokens 512 share 1 us 112 spread 0.56
time down tokens 768 share 1 us 168.96 spread 0.576
time down tokens 1024 share 1 us 192.608 spread 0.528
time down tokens 1280 share 1 us 321.456 spread 0.832
time down tokens 1536 share 1 us 341.216 spread 0.688
time down tokens 1792 share 1 us 382.24 spread 0.896
time down tokens 2048 share 1 us 360.928 spread 0.624
time down tokens 2048 share 0.7 us 466.144 spread 0.592
time down tokens 2048 share 0.5 us 608.48 spread 0.976
time down tokens 2048 share 0.2 us 1468.528 spread 1.104
op decode_attention memory
time decode_attention tokens 2 share 1 us 13.856 spread 0.576
time decode_attention tokens 4 share 1 us 16.448 spread 0.544
time decode_attention tokens 8 share 1 us 18.208 spread 0.416
time decode_attention tokens 16 share 1 us 25.6 spread 0.336
time decode_attention tokens 32 share 1 us 40.32 spread 0.512
time decode_attention tokens 64 share 1 us 43.072 spread 0.496
time decode_attention tokens 128 share 1 us 44.608 spread 0.432
time decode_attention tokens 256 share 1 us 53.344 spread 0.448
time decode_attention tokens 256 share 0.7 us 71.936 spread 1.168
time decode_attention tokens 256 share 0.5 us 84.8 spread 0.48
time decode_attention tokens 256 share 0.2 us 194.192 spread 0.432
op gather_logits memory
time gather_logits tokens 2 share 1 us 6.56 spread 0.448
time gather_logits tokens 4 share 1 us 6.496 spread 0.416
time gather_logits tokens 8 share 1 us 6.592 spread 0.416
time gather_logits tokens 16 share 1 us 6.848 spread 0.4
time gather_logits tokens 32 share 1 us 7.488 spread 0.352
time gather_logits tokens 64 share 1 us 8.384 spread 0.4
time gather_logits tokens 128 share 1 us 10.784 spread 0.448
time gather_logits tokens 256 share 1 us 14.752 spread 0.128
time gather_logits tokens 256 share 0.7 us 61.376 spread 0.08
time gather_logits tokens 256 share 0.5 us 78.272 spread 0.08
time gather_logits tokens 256 share 0.2 us 184.064 spread 0.128
op logits compute
time logits tokens 2 share 1 us 241.472 spread 0.576
time logits tokens 4 share 1 us 244.048 spread 0.704
time logits tokens 8 share 1 us 246.08 spread 0.768
time logits tokens 16 share 1 us 254.272 spread 0.8
time logits tokens 32 share 1 us 260.56 spread 0.736
time logits tokens 64 share 1 us 282.896 spread 0.752
time logits tokens 128 share 1 us 387.104 spread 1.696
time logits tokens 256 share 1 us 559.392 spread 5.056
time logits tokens 256 share 0.7 us 640.656 spread 6.912
time logits tokens 256 share 0.5 us 710.816 spread 4.912
time logits tokens 256 share 0.2 us 1622.72 spread 0.944
op argmax memory
time argmax tokens 2 share 1 us 18.88 spread 0.112
time argmax tokens 4 share 1 us 18.912 spread 0.096
time argmax tokens 8 share 1 us 18.976 spread 0.112
time argmax tokens 16 share 1 us 18.976 spread 0.096
time argmax tokens 32 share 1 us 19.04 spread 0.096
time argmax tokens 64 share 1 us 19.456 spread 0.08
time argmax tokens 128 share 1 us 25.376 spread 0.352
time argmax tokens 256 share 1 us 39.488 spread 0.384
time argmax tokens 256 share 0.7 us 61.024 spread 0.432
time argmax tokens 256 share 0.5 us 76.992 spread 0.4
time argmax tokens 256 share 0.2 us 180.768 spread 0.4
together compute share 0.1 rate 0.112901072 spread 0.0007702639066
together compute share 0.2 rate 0.2301958076 spread 0.003028494128
together compute share 0.3 rate 0.3241512017 spread 0.002128574517
together compute share 0.4 rate 0.3892397357 spread 0.001202845801
together compute share 0.5 rate 0.4820279532 spread 0.01023419678
together compute share 0.6 rate 0.6367441982 spread 0.03613493919
together compute share 0.7 rate 0.7590142915 spread 0.008202089489
together compute share 0.8 rate 0.8137902273 spread 0.01384773704
together compute share 0.9 rate 0.9565030146 spread 0.006233496892
together compute share 1 rate 0.9946570148 spread 0.003655047957
together memory share 0.1 rate 0.1238160709 spread 0.002028556352
together memory share 0.2 rate 0.2416376177 spread 0.00570182436
together memory share 0.3 rate 0.3540847532 spread 0.008802021215
together memory share 0.4 rate 0.453021978 spread 0.02920348539
together memory share 0.5 rate 0.5077671426 spread 0.007829299274
together memory share 0.6 rate 0.5987402742 spread 0.007735907567
together memory share 0.7 rate 0.723956044 spread 0.01277584833
together memory share 0.8 rate 0.6266453929 spread 0.008934854764
together memory share 0.9 rate 0.705061082 spread 0.01746495131
together copy share 0 rate 0.9980007997 spread 0.008387049019
energy qkv tokens 2048 share 1 joules 0.1720904558 us 241.2615066 gflop 103.0792151 mb 102.793216
energy attn_out tokens 2048 share 1 joules 0.1017732541 us 147.0328621 gflop 68.71947674 mb 117.440512
energy gate_up tokens 2048 share 1 joules 0.590922121 us 868.2936885 gflop 481.0363372 mb 327.172096
energy down tokens 2048 share 1 joules 0.3110855204 us 458.5901362 gflop 240.5181686 mb 243.269632
energy decode_attention tokens 256 share 1 joules 0.02256910352 us 54.5749889 gflop 0.536870912 mb 138.416128
energy logits tokens 256 share 1 joules 0.4707034956 us 644.5510112 gflop 268.9723269 mb 1186.217984
energy qkv tokens 2048 share 0.5 joules 0.2152075702 us 418.0086711 gflop 103.0792151 mb 102.793216
energy attn_out tokens 2048 share 0.5 joules 0.1385395262 us 246.9491891 gflop 68.71947674 mb 117.440512
energy gate_up tokens 2048 share 0.5 joules 0.9224814286 us 1434.685913 gflop 481.0363372 mb 327.172096
energy down tokens 2048 share 0.5 joules 0.495021978 us 741.7427077 gflop 240.5181686 mb 243.269632
energy decode_attention tokens 256 share 0.5 joules 0.03099485237 us 98.52688869 gflop 0.536870912 mb 138.416128
energy logits tokens 256 share 0.5 joules 0.5656548822 us 869.4190505 gflop 268.9723269 mb 1186.217984
power idle 165.3966682 static 296.9614626 limit 700 flop 0.834975457 byte 34.48193923
